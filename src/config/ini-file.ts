import { unsafe } from 'ini'

/** Sections in the order of the file, each with its keys and their trimmed values. */
export type Sections = Map<string, Map<string, string>>

/*
 * CouchDB's ini format differs from that of the package `ini`, which cuts `secret = a#b` at the `#`, turns `\\` into `\`,
 * nests sections at dots, makes `true` a boolean and drops `__proto__`. A mounted file must mean what it means to CouchDB
 * (config:parse_ini_file). So this file parses the lines, for reading and editing, and uses `ini` only for quoted values.
 */

type Line =
  | { readonly kind: 'section'; readonly name: string }
  | { readonly kind: 'option'; readonly key: string; readonly rest: string }
  | { readonly kind: 'continuation'; readonly rest: string }
  | { readonly kind: 'other' }

/** A key with its value: lines [first, end) of the text. */
interface Option {
  readonly section: string
  readonly key: string
  value: string
  readonly first: number
  end: number
}

interface Scan {
  readonly lines: readonly string[]
  readonly options: readonly Option[]
  /** Every header with the number of its line. */
  readonly headers: readonly { readonly name: string; readonly line: number }[]
}

/**
 * Reads text in CouchDB's ini format. The last one of equal keys counts. Other lines are ignored, as in CouchDB.
 * @returns every value as a trimmed string, also `true`, `null` and the empty one
 */
export function parseIni(text: string): Sections {
  const sections: Sections = new Map()
  for (const { section, key, value } of scan(text).options) {
    const keys = sections.get(section) ?? new Map<string, string>()
    sections.set(section, keys.set(key, value))
  }
  return sections
}

/** A line that {@link parseIni} ignores or that has an error. */
interface IniFault {
  /** From 1. */
  readonly line: number
  /** Words that follow the line's number in a sentence. They never quote the line, which may hold a password. */
  readonly problem: string
}

/**
 * Finds the first invalid line. CouchDB ignores such lines silently: a setting is lost or, after an invalid header, ends up
 * in the section above.
 * @returns null if every line is a section, a setting, its continuation, a comment or empty
 */
export function faultOfIni(text: string): IniFault | null {
  const { lines, options, headers } = scan(text)
  const covered = new Set(options.flatMap(({ first, end }) => range(first, end)))
  for (const [number, line] of lines.entries()) {
    const problem = covered.has(number) ? null : problemOfLine(line, headers[0]?.line ?? lines.length, number)
    if (problem !== null) return { line: number + 1, problem }
  }
  return null
}

/** @returns the number, from 1, of the line that sets the key; null if there is none */
export function lineOf(text: string, section: string, key: string): number | null {
  const option = scan(text).options.findLast((option) => option.section === section && option.key === key)
  return option === undefined ? null : option.first + 1
}

function range(first: number, end: number): number[] {
  return Array.from({ length: end - first }, (_, offset) => first + offset)
}

/** @returns the error of a line that sets no key; null if it has none */
function problemOfLine(line: string, firstHeader: number, number: number): string | null {
  const text = line.trim()
  if (text === '' || /^[;#]/.test(text)) return null
  const { kind } = classify(line)
  if (kind === 'section') return text === '[]' ? 'has no section name' : null
  if (text.startsWith('[')) return 'is not a section: it must be a name between [ and ], and nothing else'
  if (kind === 'option' && number < firstHeader) return 'is a setting, but there is no section above it'
  if (kind === 'continuation') return 'continues the line above, which is not a setting'
  return 'is not a section, a setting or a comment'
}

/**
 * Sets one key in the text of an ini file, in its line if it has one. All other lines stay as they are, and so does a
 * comment after the old value.
 * @param section, key, value as accepted by `checkSetting`
 * @returns the new text
 */
export function setInText(text: string, section: string, key: string, value: string): string {
  const { lines, options, headers } = scan(text)
  const old = options.findLast((option) => option.section === section && option.key === key)
  if (old)
    return lines.toSpliced(old.first, old.end - old.first, withValue(lines[old.first]!, value)).join('')
  const eol = text.includes('\r\n') ? '\r\n' : '\n'
  const line = `${key} = ${encodeValue(value)}${eol}`
  const header = headers.findLast(({ name }) => name === section)
  if (!header) return `${endLine(text, eol)}${text.trim() === '' ? '' : eol}[${section}]${eol}${line}`
  const last = options.findLast(({ first }) => first > header.line && sectionOf(headers, first) === header)
  let before = last?.end ?? header.line + 1
  // A continuation without a setting must not continue the new line.
  while (before < lines.length && classify(lines[before]!).kind === 'continuation') before += 1
  return endLine(lines.slice(0, before).join(''), eol) + line + lines.slice(before).join('')
}

/**
 * Removes every line that sets the key.
 * @returns the new text; the same text if it does not have the key
 */
export function deleteInText(text: string, section: string, key: string): string {
  const { lines, options } = scan(text)
  const gone = options.filter((option) => option.section === section && option.key === key)
  return lines.filter((_, number) => !gone.some(({ first, end }) => first <= number && number < end)).join('')
}

function scan(text: string): Scan {
  const lines = text.match(/[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$/g) ?? []
  const options: Option[] = []
  const headers: { name: string; line: number }[] = []
  for (const [number, text] of lines.entries()) {
    const line = classify(text)
    const section = headers.at(-1)?.name
    const previous = options.at(-1)
    if (line.kind === 'section') headers.push({ name: line.name, line: number })
    else if (line.kind === 'option' && section !== undefined) {
      options.push({ section, key: line.key, value: decodeValue(line.rest), first: number, end: number + 1 })
    } else if (line.kind === 'continuation' && previous?.end === number) {
      previous.value = `${previous.value} ${decodeValue(line.rest)}`.trim()
      previous.end = number + 1
    }
  }
  return { lines, options, headers }
}

function classify(line: string): Line {
  const text = line.trim()
  const name = /^\[([^\]]*)\]$/.exec(text)?.[1]
  if (name !== undefined) return { kind: 'section', name }
  if (/^[[;#]/.test(text)) return { kind: 'other' }
  const equals = text.indexOf('=')
  if (equals > 0) return { kind: 'option', key: text.slice(0, equals).trim(), rest: text.slice(equals + 1) }
  return equals === -1 && /^ \S/.test(line) ? { kind: 'continuation', rest: text } : { kind: 'other' }
}

function sectionOf(headers: Scan['headers'], line: number): Scan['headers'][number] | undefined {
  return headers.findLast((header) => header.line < line)
}

// A value in double quotes, with nothing or a comment after it.
const QUOTED = /^\s*("(?:[^"\\]|\\.)*")(\s+;.*|\s*)$/s
// The start of a comment after a plain value: CouchDB requires white space before the semicolon.
const COMMENT = /(?:^|\s);.*$/s

function decodeValue(rest: string): string {
  const quoted = QUOTED.exec(rest)?.[1]
  return (quoted === undefined ? rest.replace(COMMENT, '') : unsafe(quoted)).trim()
}

/**
 * The text that reads back as the value: unquoted if possible, so that CouchDB reads it as well. Otherwise (` ;` in it,
 * quotes around it) in double quotes, since CouchDB cannot write such values at all.
 * @param comment the rest of the line after the value
 */
function encodeValue(value: string, comment = ''): string {
  return (decodeValue(value + comment) === value ? value : JSON.stringify(value)) + comment
}

/** The first line of an option with another value; the text before the value and a comment after it are kept. */
function withValue(line: string, value: string): string {
  const equals = line.indexOf('=')
  const eol = /[\r\n]*$/.exec(line)![0]
  const rest = line.slice(equals + 1, line.length - eol.length)
  const comment = QUOTED.exec(rest)?.[2] ?? COMMENT.exec(rest)?.[0] ?? ''
  const space = /^[ \t]*/.exec(rest.slice(0, rest.length - comment.length))![0]
  const kept = comment.trim() === '' ? '' : ` ${comment.trim()}`
  return `${line.slice(0, equals + 1)}${space}${encodeValue(value, kept)}${eol}`
}

function endLine(text: string, eol: string): string {
  return text === '' || /[\r\n]$/.test(text) ? text : text + eol
}

/** @returns the keys whose values differ */
export function differences(old: Sections, fresh: Sections): (readonly [section: string, key: string])[] {
  const both = new Set([...old.keys(), ...fresh.keys()])
  return [...both].flatMap((section) => {
    const [before, after] = [old.get(section), fresh.get(section)]
    const keys = new Set([...(before?.keys() ?? []), ...(after?.keys() ?? [])])
    return [...keys]
      .filter((key) => before?.get(key) !== after?.get(key))
      .map((key) => [section, key] as const)
  })
}
