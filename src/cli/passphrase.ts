/** Passwords and passphrases that are made here, and those that come in a file. */
import { randomInt } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'

/** Without what looks alike in some type: people copy these by hand. */
const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789'
const GROUPS = 5
const MAX_BYTES = 4096

/** @returns five groups of five letters: about 124 random bits */
export function newPassphrase(): string {
  const group = () => Array.from({ length: 5 }, () => LETTERS[randomInt(LETTERS.length)]).join('')
  return Array.from({ length: GROUPS }, group).join('-')
}

/**
 * Reads a passphrase that a file holds: one line, whose end is no part of it.
 * @throws Error with one clear line, when it is not there, empty, too long or several lines
 */
export async function readPassphrase(file: string): Promise<string> {
  const about = `The file ${file} of --passphrase-file`
  const text = await read(file).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${about} cannot be read (${error.code ?? error.message}).`, { cause: error })
  })
  const passphrase = text.replace(/\r?\n$/, '')
  if (passphrase.trim() === '') throw new Error(`${about} is empty.`)
  if (/[\r\n]/.test(passphrase)) throw new Error(`${about} is more than one line.`)
  return passphrase
}

async function read(file: string): Promise<string> {
  if ((await stat(file)).size > MAX_BYTES) throw new Error(`longer than ${MAX_BYTES} bytes`)
  return readFile(file, 'utf8')
}
