/** `settee doctor`: what the apps meet at an address, and what to change. */
import { readFile } from 'node:fs/promises'
import { setteeVersion } from '../config/version.ts'
import { APP_ORIGINS } from '../core/app-origins.ts'
import { examine } from './doctor/examine.ts'
import type { Finding } from './doctor/finding.ts'
import { isWell, jsonOf, linesOf, reportOf, summaryOf } from './doctor/output.ts'
import { paceOf } from './doctor/pace.ts'
import type { DoctorCommand } from './doctor-arguments.ts'
import { oneLine } from './one-line.ts'
import { readPassword } from './password.ts'

/** @returns the exit code: 1 when something is wrong, or nothing could be looked at */
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
  const { mobile, json, report } = command
  const origins = command.origins.length > 0 ? command.origins : APP_ORIGINS
  const started = performance.now()
  const findings: Finding[] = []
  for await (const finding of examine({ address, mobile, origins, ca, pace: paceOf(command) })) {
    findings.push(finding)
    if (!json && !report) process.stdout.write(linesOf(finding))
  }
  const ms = performance.now() - started
  if (json) process.stdout.write(jsonOf(address, findings, ms))
  else if (report) process.stdout.write(reportOf(address, findings, setteeVersion()))
  else process.stdout.write(summaryOf(findings, ms))
  return isWell(findings) ? 0 : 1
}

/** The same bounds as of a password, and its words put right. */
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
  if (!text.includes('-----BEGIN CERTIFICATE-----')) throw new Error(`${file} holds no certificate in PEM.`)
  return text
}
