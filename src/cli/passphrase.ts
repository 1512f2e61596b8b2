/** Passwords and passphrases that are made here, and those that come in a file. */
import { randomInt } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readSecret } from './password.ts'

/** Without what looks alike in some type: people copy these by hand. */
const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789'
const GROUPS = 5

/** @returns five groups of five letters: about 124 random bits */
export function newPassphrase(): string {
  const group = () => Array.from({ length: 5 }, () => LETTERS[randomInt(LETTERS.length)]).join('')
  return Array.from({ length: GROUPS }, group).join('-')
}

/**
 * Reads a passphrase that a file holds: one line, whose end is no part of it.
 * @throws Error with one clear line, when it is not there, empty, too long, several lines or no UTF-8
 */
export async function readPassphrase(file: string): Promise<string> {
  const what = `The passphrase in ${file}`
  const passphrase = await readSecret(createReadStream(file), what).catch((error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error
    throw new Error(`The file ${file} of --passphrase-file cannot be read (${error.code}).`, { cause: error })
  })
  if (passphrase.trim() === '') throw new Error(`${what} is empty.`)
  return passphrase
}
