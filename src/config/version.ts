import { readFileSync } from 'node:fs'

/** @returns the version in package.json, two folders above this file in both src/ and dist/ */
export function setteeVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
