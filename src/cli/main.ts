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
    case 'size': {
      const { runSizeCommand } = await import('./size.ts')
      process.exitCode = await runSizeCommand(command, process.env)
      return
    }
    case 'export':
    case 'import': {
      const { runTransferCommand } = await import('./transfer.ts')
      process.exitCode = await runTransferCommand(command, process.env)
      return
    }
    case 'restore':
    case 'adopt': {
      const { runRestoreCommand } = await import('./restore.ts')
      process.exitCode = await runRestoreCommand(command, process.env)
      return
    }
    case 'backup': {
      const { runBackupCommand } = await import('./backup.ts')
      process.exitCode = await runBackupCommand(command, process.env)
      return
    }
    case 'history':
    case 'rewind': {
      const { runTimeMachineCommand } = await import('./time-machine.ts')
      process.exitCode = await runTimeMachineCommand(command, process.env)
      return
    }
    case 'doctor': {
      const { runDoctorCommand } = await import('./doctor.ts')
      process.exitCode = await runDoctorCommand(command)
      return
    }
    case 'setup': {
      const { runSetupCommand } = await import('./setup.ts')
      process.exitCode = await runSetupCommand(command, process.env)
      return
    }
    case 'vault add': {
      const { runVaultCommand } = await import('./vault.ts')
      process.exitCode = await runVaultCommand(command, process.env)
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
