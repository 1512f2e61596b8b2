import { unsafe } from 'ini'

/** Sections in the order of the file, each with its keys and their trimmed values. */
export type Sections = Map<string, Map<string, string>>

/*
 * CouchDB's format is close to, but not, the one that the package `ini` parses: there `secret = a#b` is cut at the
 * `#`, `\\` becomes `\`, dots nest sections, `true` is a boolean, `__proto__` vanishes. A mounted file must
 * mean what it meant to CouchDB (config:parse_ini_file), so the lines are told apart here, for reading and for
 * editing alike, and `ini` lends its dialect of quoted values alone.
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
 * Reads text in CouchDB's ini format. Of a key that stands twice the last counts; a line that is no section, option
 * or continuation is passed over, as CouchDB does.
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

/** A line that {@link parseIni} passes over, or that is not the text it should be. */
interface IniFault {
  /** From 1. */
  readonly line: number
  /** Words that follow the line's number in a sentence; never what stands in the line, which may be a password. */
  readonly problem: string
}

/**
 * Looks for the first line that means nothing: CouchDB passes over such lines without a word, and the setting that
 * was meant is lost or, behind a header with a fault, lands in the section above.
 * @returns null when every line is a section, a setting, its continuation, a comment or empty
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

/** @returns the number, from 1, of the line that gives the key its value; null when none does */
export function lineOf(text: string, section: string, key: string): number | null {
  const option = scan(text).options.findLast((option) => option.section === section && option.key === key)
  return option === undefined ? null : option.first + 1
}

function range(first: number, end: number): number[] {
  return Array.from({ length: end - first }, (_, offset) => first + offset)
}

/** What is wrong with a line that gives no key a value. */
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
 * Sets one key in the text of an ini file, in its place if it has one; every other line stays as it is, a comment
 * behind the old value too.
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
  // A continuation of nothing must not become a continuation of the new line.
  while (before < lines.length && classify(lines[before]!).kind === 'continuation') before += 1
  return endLine(lines.slice(0, before).join(''), eol) + line + lines.slice(before).join('')
}

/**
 * Removes every line that gives the key a value.
 * @returns the new text; the same text when the key is not in it
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

// A value in double quotes, with nothing or a comment behind it.
const QUOTED = /^\s*("(?:[^"\\]|\\.)*")(\s+;.*|\s*)$/s
// Where the comment behind a plain value begins: CouchDB asks for white space before the semicolon.
const COMMENT = /(?:^|\s);.*$/s

function decodeValue(rest: string): string {
  const quoted = QUOTED.exec(rest)?.[1]
  return (quoted === undefined ? rest.replace(COMMENT, '') : unsafe(quoted)).trim()
}

/**
 * The text that reads back as the value: as it stands wherever that works, for then CouchDB reads it as well; in
 * double quotes otherwise (` ;` within it, quotes around it), for which CouchDB has no way of writing at all.
 * @param comment what stands behind the value in its line
 */
function encodeValue(value: string, comment = ''): string {
  return (decodeValue(value + comment) === value ? value : JSON.stringify(value)) + comment
}

/** The first line of an option with another value; what stands before the value and a comment behind it are kept. */
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
