// Runs a sandbox thread, as database-thread.mjs does a database thread.
const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'
await import(isBuilt ? '../../dist/sandbox/sandbox-worker.js' : '../../src/sandbox/sandbox-worker.ts')
