// Runs a sandbox thread from its TypeScript source: a worker does not inherit the loader that runs the tests.
import { register } from 'tsx/esm/api'

register()
await import('../../src/sandbox/worker.ts')
