#!/usr/bin/env node
/** The first major version of Node that better-sqlite3 runs on: on an older one it ends the process without a word. */
const OLDEST_NODE = 22

async function main(): Promise<void> {
  if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
    console.error(
      `settee: Node.js ${OLDEST_NODE} or later is required; this is Node.js ${process.versions.node}.`,
    )
    process.exitCode = 1
    return
  }
  // What settee writes is for its own account alone: notes, passwords, secrets.
  process.umask(0o077)
  // Not imported above: these files load better-sqlite3.
  const { parseCommand } = await import('./commands.ts')
  const { UsageError } = await import('./grammar.ts')
  try {
    const code = await parseCommand(process.argv.slice(2)).run(process.env)
    if (code !== undefined) process.exitCode = code
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    console.error(`settee: ${error.message} See settee --help.`)
    process.exitCode = 1
  }
}

await main()
