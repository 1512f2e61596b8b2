// Runs a sandbox thread; see database-thread.mjs.
const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'
await import(isBuilt ? '../../dist/sandbox/sandbox-worker.js' : '../../src/sandbox/sandbox-worker.ts')
