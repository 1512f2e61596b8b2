// Runs a database thread: from dist/, which `npm test` has just built, or from the sources when a test is run by itself.
const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'
await import(isBuilt ? '../../dist/threads/host.js' : '../../src/threads/host.ts')
