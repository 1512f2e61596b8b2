/** How findings are shown: to people, to programs, and to be pasted where others read it. */
import { platform, release } from 'node:os'
import { type Address, parseAddress } from '../../core/address.ts'
import { oneLine } from '../one-line.ts'
import type { Cure, Finding, State } from './finding.ts'
import { isLoopback } from './findings/look-up.ts'

const WORDS: Readonly<Record<State, string>> = { fine: 'fine', note: 'note', wrong: 'WRONG', skipped: '-' }
const NAME_WIDTH = 11

/** A line for a finding, and one for each of several cures. */
export function linesOf({ state, name, text, cures }: Finding): string {
  const head = `${WORDS[state].padEnd(5)}  ${name.padEnd(NAME_WIDTH)}  ${oneLine(text)}`
  const [only] = cures
  if (only !== undefined && cures.length === 1) return `${head} ${cureOf(only)}\n`
  return `${[head, ...cures.map((cure) => `       ${''.padEnd(NAME_WIDTH)}  ${cureOf(cure)}`)].join('\n')}\n`
}

function cureOf({ place, line }: Cure): string {
  return place === 'you' ? line : `${place}: ${line}`
}

/** Whether nothing is wrong. */
export function isWell(findings: readonly Finding[]): boolean {
  return findings.every(({ state }) => state !== 'wrong')
}

/** @returns one sentence about all of them */
export function summaryOf(findings: readonly Finding[], ms: number): string {
  const count = (state: State) => findings.filter((each) => each.state === state).length
  const wrong = count('wrong')
  const notes = count('note')
  const what = wrong === 0 ? 'Nothing is wrong' : `${wrong} ${wrong === 1 ? 'thing is' : 'things are'} wrong`
  const more = notes === 0 ? '' : `, ${notes} could be better`
  return `${what}${more} (${(ms / 1000).toFixed(1)} s).\n`
}

/** For programs; without credentials. @param text the address as it was given */
export function jsonOf(text: string, findings: readonly Finding[], ms: number): string {
  const found = parseAddress(text)
  const address = found.ok ? found.address.url : null
  const told = findings.map((each) => ({ ...each, text: oneLine(each.text) }))
  return `${JSON.stringify({ address, ok: isWell(findings), ms: Math.round(ms), findings: told })}\n`
}

/**
 * For an issue or a forum: what was found without the names of host, database and account, and without addresses.
 * @param text the address as it was given
 * @param version of settee
 */
export function reportOf(text: string, findings: readonly Finding[], version: string): string {
  const lines = findings.map(linesOf).join('')
  const found = parseAddress(text)
  const masked = found.ok ? mask(lines, found.address) : lines
  const scheme = found.ok ? `${found.address.scheme}, port ${found.address.port}` : 'no address'
  const head = `settee doctor ${version}, Node ${process.versions.node}, ${platform()} ${release()}; ${scheme}`
  return `\`\`\`\n${head}\n${masked}\`\`\`\n`
}

const IPV4 = /(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)/g
const IPV6 = /(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])/gi
/** Stands in advice for everybody, as loopback does, and tells nothing of anybody. */
const ANY = '0.0.0.0'

function mask(lines: string, { host, database, username }: Address): string {
  const names: [string, string][] = [
    ...(isLoopback(host) ? [] : ([[host, '<host>']] as [string, string][])),
    [database, '<database>'],
    [encodeURIComponent(database), '<database>'],
    ...(username === undefined ? [] : ([[username, '<user>']] as [string, string][])),
  ]
  // Longer ones first: one may be part of another.
  const byLength = names.filter(([name]) => name !== '').sort(([a], [b]) => b.length - a.length)
  let masked = lines
  for (const [name, by] of byLength) {
    masked = masked.replaceAll(new RegExp(`(?<![\\w<-])${escaped(name)}(?![\\w>-])`, 'gi'), by)
  }
  const address = (found: string) => (found === ANY || isLoopback(found) ? found : '<address>')
  return masked.replaceAll(IPV4, address).replaceAll(IPV6, address)
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&')
}
