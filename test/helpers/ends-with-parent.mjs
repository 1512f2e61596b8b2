// A module that is loaded before a program of a test: the program ends when the test's process has ended, since then its
// standard input ends.
import { isMainThread } from 'node:worker_threads'

if (isMainThread) process.stdin.on('end', () => process.exit(9)).resume()
