// npm start [-- options of settee serve]: builds dist/ if it is not up to date, and serves, in one process. A second
// process would take a tenth of the allowed start time.
await import('./build.mjs')
process.argv.splice(2, 0, 'serve')
await import('../dist/cli/main.js')
