// Loaded before each test file by scripts/test.mjs.
import hooks from 'node:async_hooks'
import { readFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { isMainThread } from 'node:worker_threads'

// tap watches every promise of its process by async hooks, to know which test an uncaught error belongs to. With a server in
// the same process that takes up to a quarter of the CPU time. Without them an unhandled rejection fails the file instead of
// a test in it, and an uncaught exception ends the process with its stack.
const idle = { enable: () => idle, disable: () => idle }
hooks.createHook = () => idle
syncBuiltinESMExports()

/** Of the clock in /proc on every architecture that Node runs on; proc(5). */
const TICKS_PER_SECOND = 100

/** @returns seconds, with those of the processes that this one has started and that have ended, where /proc tells them */
function cpuSeconds() {
  try {
    // Fields 14 to 17, counted after the name in parentheses.
    const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1).split(' ').slice(11, 15)
    return fields.reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND
  } catch {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1_000_000
  }
}

if (isMainThread) process.on('exit', () => process.stdout.write(`# CPU time: ${cpuSeconds()} s\n`))
