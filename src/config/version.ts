import { readFileSync } from 'node:fs'
import { programFile } from '../core/program-files.ts'

/** @returns the version in package.json, which is beside src/ and dist/ */
export function setteeVersion(): string {
  const text = readFileSync(programFile('../package.json'), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
