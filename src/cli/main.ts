#!/usr/bin/env node
/** The first major version that better-sqlite3 supports: on older ones, it ends the process without a message. */
const MIN_NODE = 22

async function main(): Promise<void> {
  if (Number.parseInt(process.versions.node, 10) < MIN_NODE) {
    console.error(
      `settee: Node.js ${MIN_NODE} or later is required; this is Node.js ${process.versions.node}.`,
    )
    process.exitCode = 1
    return
  }
  // Only settee's own account may read its files: notes, passwords, secrets.
  process.umask(0o077)
  // Imported here, after the check of the version, because these files load better-sqlite3.
  const { parseCommand } = await import('./commands.ts')
  const { UsageError } = await import('./grammar.ts')
  try {
    const code = await parseCommand(process.argv.slice(2)).run(process.env)
    if (code !== undefined) process.exitCode = code
  } catch (error) {
    if (!(error instanceof UsageError)) throw await withSources(error)
    console.error(`settee: ${error.message} See settee --help.`)
    process.exitCode = 1
  }
}

/** Makes the stack name the sources, which Node prints. */
async function withSources(error: unknown): Promise<unknown> {
  const { sourceTrace } = await import('../core/source-trace.ts')
  if (error instanceof Error && error.stack !== undefined) error.stack = sourceTrace(error.stack)
  return error
}

await main()
