/**
 * The state that the server holds in memory, read from the sources with regular expressions: variables of modules that
 * change, and fields of classes that change or collect. The formatter puts each on a line of its own.
 */
import type { Source } from './sources.ts'

const COLLECTION =
  /\bnew (?:Map|Set|WeakMap|WeakSet|LRUCache|BoundedCache|RecordCache|RecordQueue)\b|: (?:Map|Set|LRUCache|RecordCache)<|= \[/
/** How work is scheduled and ended, which decides nothing: timers, promises of work under way, listeners. */
const MECHANICS =
  /^#?(?:cancel\w*|\w*[tT]imer|is[A-Z]\w*|has[A-Z]\w*|closed|closing|\w*[lL]isteners|unwatch\w*|stop\w*|retry|wake|work|running|lastWrite|looking|reading|flushing|sweeping|abort)$/

/** @returns `Class.field`, or the name alone of a module's variable */
export function heldState({ code }: Source): string[] {
  const found: string[] = []
  let owner: string | null = null
  for (const line of code.split('\n')) {
    const opened = /^(?:export )?(?:abstract )?class (\w+)/.exec(line)?.[1]
    if (opened !== undefined) owner = opened
    else if (line.startsWith('}')) owner = null
    const name = owner === null ? variableOf(line) : fieldOf(line)
    if (name !== undefined && !MECHANICS.test(name)) found.push(owner === null ? name : `${owner}.${name}`)
  }
  return found
}

function variableOf(line: string): string | undefined {
  const changing = /^(?:export )?let (\w+)/.exec(line)?.[1]
  if (changing !== undefined) return changing
  const fixed = /^(?:export )?const (\w+).* = new (?:Map|Set|WeakMap|WeakSet|LRUCache)\b[^(]*\((?!\[)/.exec(
    line,
  )
  return /: Readonly(?:Map|Set)\b/.test(line) ? undefined : fixed?.[1]
}

const FIELD = /^ {2}(?:static |override )*(readonly )?(#?\w+)[?!]?(: [^={]+?)?( = .*)?$/

function fieldOf(line: string): string | undefined {
  const [, fixed, name, type, value] = FIELD.exec(line) ?? []
  if (name === undefined || (type === undefined && value === undefined)) return undefined
  const collects = COLLECTION.test(`${type ?? ''}${value ?? ''}`)
  return fixed === undefined || collects ? name : undefined
}
