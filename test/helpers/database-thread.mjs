// Runs a database thread: from dist/ under `npm test`, which builds it, otherwise from the sources.
const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'
await import(isBuilt ? '../../dist/threads/host.js' : '../../src/threads/host.ts')
