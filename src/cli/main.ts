#!/usr/bin/env node
import { setteeVersion } from '../config/version.ts'
import { type Command, HELP, parseCommand } from './arguments.ts'
import { UsageError } from './usage-error.ts'

async function run(command: Command): Promise<void> {
  switch (command.name) {
    case 'help':
      process.stdout.write(HELP)
      return
    case 'version':
      process.stdout.write(`settee ${setteeVersion()}\n`)
      return
    case 'serve': {
      // Loaded only now, so that --help does not wait for the whole server.
      const { serve } = await import('./serve.ts')
      await serve(command.arguments, process.env)
      return
    }
    case 'history':
    case 'rewind': {
      const { runTimeMachineCommand } = await import('./time-machine.ts')
      process.exitCode = await runTimeMachineCommand(command, process.env)
      return
    }
    default: {
      const { runAccountCommand } = await import('./account.ts')
      process.exitCode = await runAccountCommand(command, process.env)
    }
  }
}

try {
  await run(parseCommand(process.argv.slice(2)))
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  console.error(`settee: ${error.message} See settee --help.`)
  process.exitCode = 1
}
