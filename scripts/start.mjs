// npm start [-- options of settee serve]: looks whether dist/ is up to date, and serves, in one process: a second one
// would take a tenth of the time that a start may take.
await import('./build.mjs')
process.argv.splice(2, 0, 'serve')
await import('../dist/cli/main.js')
