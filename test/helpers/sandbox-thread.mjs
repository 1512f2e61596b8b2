// Runs a sandbox thread, as database-thread.mjs does a database thread.
if (process.env.SETTEE_TEST_BUILT === 'true') await import('../../dist/sandbox/worker.js')
else {
  const { register } = await import('tsx/esm/api')
  register()
  await import('../../src/sandbox/worker.ts')
}
