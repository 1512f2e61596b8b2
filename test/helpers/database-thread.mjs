// Runs a database thread. `npm test` has built dist/ just now and says so; else it runs from the TypeScript source, for
// which it needs a loader of its own, since a worker does not inherit the one that runs the tests: half a second's work.
if (process.env.SETTEE_TEST_BUILT === 'true') await import('../../dist/threads/host.js')
else {
  const { register } = await import('tsx/esm/api')
  register()
  await import('../../src/threads/host.ts')
}
