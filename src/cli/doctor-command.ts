/** `settee doctor`: runs the checks, and prints the findings. */
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { platform, release } from 'node:os'
import { setteeVersion } from '../config/version.ts'
import { type Address, parseAddress } from '../core/address.ts'
import { APP_ORIGINS } from '../core/app-origins.ts'
import { oneLine } from '../core/errors.ts'
import { isLoopback } from '../core/network.ts'
import { limitsFor } from '../doctor/doctor-client.ts'
import type { Cure, Finding, State } from '../doctor/finding.ts'
import { runChecks } from '../doctor/run-checks.ts'
import type { DoctorCommand } from './doctor-arguments.ts'
import { readPassword } from './prompts.ts'

/** @returns the exit code: 1 if something is wrong, or the checks could not run */
export async function runDoctorCommand(command: DoctorCommand): Promise<number> {
  try {
    const address = command.address ?? (await readAddress())
    const ca = command.ca === undefined ? undefined : await readCertificates(command.ca)
    return await run(command, address, ca)
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function run(command: DoctorCommand, address: string, ca: string | undefined): Promise<number> {
  const { mobile, json, report, headers } = command
  const origins = command.origins.length > 0 ? command.origins : APP_ORIGINS
  const started = performance.now()
  const findings: Finding[] = []
  const options = { address, mobile, origins, ca, headers, limits: limitsFor(command) }
  for await (const finding of runChecks(options)) {
    findings.push(finding)
    if (!json && !report) process.stdout.write(linesOf(finding))
  }
  const ms = performance.now() - started
  if (json) process.stdout.write(jsonOf(address, findings, ms))
  else if (report) process.stdout.write(reportOf(address, findings, setteeVersion()))
  else process.stdout.write(summaryOf(findings, ms))
  return isWell(findings) ? 0 : 1
}

/** Reads the address with the limits of a password. Error messages say "address" instead of "password". */
async function readAddress(): Promise<string> {
  try {
    return await readPassword(process.stdin)
  } catch (error) {
    throw new Error((error as Error).message.replaceAll('password', 'address'))
  }
}

async function readCertificates(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${file} cannot be read (${error.code}).`)
  })
  if (!text.includes('-----BEGIN CERTIFICATE-----')) throw new Error(`${file} contains no PEM certificate.`)
  return text
}

const WORDS: Readonly<Record<State, string>> = { fine: 'fine', note: 'note', wrong: 'WRONG', skipped: '-' }
const NAME_WIDTH = 11

/** @returns a line for the finding, and one for each cure if there are several */
export function linesOf({ state, name, text, cures }: Finding<string>): string {
  const head = `${WORDS[state].padEnd(5)}  ${name.padEnd(NAME_WIDTH)}  ${oneLine(text)}`
  const [only] = cures
  if (only !== undefined && cures.length === 1) return `${head} ${cureOf(only)}\n`
  return `${[head, ...cures.map((cure) => `       ${''.padEnd(NAME_WIDTH)}  ${cureOf(cure)}`)].join('\n')}\n`
}

function cureOf({ place, line }: Cure): string {
  return place === 'you' ? line : `${place}: ${line}`
}

/** Whether nothing is wrong. */
export function isWell(findings: readonly Finding<string>[]): boolean {
  return findings.every(({ state }) => state !== 'wrong')
}

/** @returns one sentence about all findings */
export function summaryOf(findings: readonly Finding<string>[], ms: number): string {
  const count = (state: State) => findings.filter((each) => each.state === state).length
  const wrong = count('wrong')
  const notes = count('note')
  const what = wrong === 0 ? 'Nothing is wrong' : `${wrong} ${wrong === 1 ? 'thing is' : 'things are'} wrong`
  const more = notes === 0 ? '' : `, ${notes} ${notes === 1 ? 'thing' : 'things'} could be better`
  return `${what}${more} (${(ms / 1000).toFixed(1)} s).\n`
}

/** The findings as JSON, without credentials. @param text the given address */
export function jsonOf(text: string, findings: readonly Finding[], ms: number): string {
  const found = parseAddress(text)
  const address = found.ok ? found.address.url : null
  const shown = findings.map(({ name, state, text, cures }) => ({ name, state, text: oneLine(text), cures }))
  return `${JSON.stringify({ address, ok: isWell(findings), ms: Math.round(ms), findings: shown })}\n`
}

/**
 * A report for an issue or a forum, without the names of host, database and account and without IP addresses.
 * @param text the given address
 * @param version of settee
 */
export function reportOf(text: string, findings: readonly Finding[], version: string): string {
  const found = parseAddress(text)
  const shown = (each: Finding) => (found.ok ? mask(each, found.address) : linesOf(each))
  const scheme = found.ok ? `${found.address.scheme}, port ${found.address.port}` : 'invalid address'
  const head = `settee doctor ${version}, Node ${process.versions.node}, ${platform()} ${release()}; ${scheme}`
  return `\`\`\`\n${head}\n${findings.map(shown).join('')}\`\`\`\n`
}

const IPV4 = /(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)/g
const IPV6 = /(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])/gi
/** Part of the advice. Like loopback, it identifies nobody. */
const ANY = '0.0.0.0'

/** Names in a certificate, and hosts of URLs in a server's texts. */
const ALTERNATIVE = /(?<=\bDNS:)[^\s,]+/g
const URL_HOST = /(?<=\bhttps?:\/\/)\w[^\s/:"',]*/g

function mask(finding: Finding, { host, database, username }: Address): string {
  const names: [string, string][] = [
    ...(isLoopback(host) ? [] : ([[host, '<host>']] as [string, string][])),
    [database, '<database>'],
    [encodeURIComponent(database), '<database>'],
    ...(username === undefined ? [] : ([[username, '<user>']] as [string, string][])),
    ...(finding.names ?? []).map((name): [string, string] => [name, '<name>']),
  ]
  // Longer names first, because one may contain another.
  const byLength = names.filter(([name]) => name !== '').sort(([a], [b]) => b.length - a.length)
  let masked = linesOf(finding)
  for (const [name, by] of byLength) {
    masked = masked.replaceAll(new RegExp(`(?<![\\w<-])${escaped(name)}(?![\\w>-])`, 'gi'), by)
  }
  const parent = parentOf(host)
  if (parent !== null)
    masked = masked.replaceAll(new RegExp(`(?:[\\w*-]+\\.)*${escaped(parent)}`, 'gi'), '<host>')
  const urlHost = (found: string) => (found === ANY || isLoopback(found) ? found : '<host>')
  masked = masked.replaceAll(ALTERNATIVE, '<name>').replaceAll(URL_HOST, urlHost)
  const address = (found: string) => (found === ANY || isLoopback(found) ? found : '<address>')
  return masked.replaceAll(IPV4, address).replaceAll(IPV6, address)
}

/** @returns the host's parent domain, whose names identify the owner as well; null: none */
function parentOf(host: string): string | null {
  const [, ...parent] = host.split('.')
  return isIP(host) !== 0 || isLoopback(host) || parent.length < 2 ? null : parent.join('.')
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&')
}
