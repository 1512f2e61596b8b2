#!/usr/bin/env node
import { parseCommand } from './commands.ts'
import { UsageError } from './usage-error.ts'

try {
  const code = await parseCommand(process.argv.slice(2)).run(process.env)
  if (code !== undefined) process.exitCode = code
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  console.error(`settee: ${error.message} See settee --help.`)
  process.exitCode = 1
}
