/** What `settee --help` prints. */
import type { Grammar } from './grammar.ts'

/** All commands, with what each is for. */
export function overview(grammars: readonly Grammar[]): string {
  const rows = grammars.map(({ name, about }) => `  ${name.padEnd(16)}${about}\n`)
  return `settee - a small CouchDB-compatible sync server

Usage: settee [<command>] [options]

${rows.join('')}
settee help <command> tells its options, also as settee <command> --help.
  --help, -h        show this text
  --version, -v     show the version
`
}

/** One command, or those that share a first word. */
export function detailsOf(grammars: readonly Grammar[]): string {
  return grammars.map((grammar) => `${usageOf(grammar)}\n\n${grammar.details}`).join('\n')
}

/** Lines that begin with a word in angle brackets or none are ways to call it, further ones go on. */
function usageOf({ name, usage }: Grammar): string {
  const lines = usage.split('\n').map((line, at) => {
    if (at === 0) return `Usage: settee ${name} ${line}`
    return line.startsWith('<') ? `       settee ${name} ${line}` : `              ${line}`
  })
  return lines.join('\n')
}
