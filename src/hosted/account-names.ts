/** What accounts may be called, and what their passwords must be. */
import { CouchError } from '../core/errors.ts'

const MAX_NAME = 128
const CONTROLS = /\p{Cc}/u
/** What people may call themselves: nothing that looks like another's name in other letters. */
const SIGN_UP_NAME = /^[a-z0-9][a-z0-9_.@+-]{1,63}$/
const MIN_PASSWORD = 8
const MAX_PASSWORD_BYTES = 1024

/**
 * Checks an account that an admin makes. Basic credentials end the name at the first colon.
 * @throws bad_request
 */
export function checkAccount(name: string, password: string): void {
  const isName =
    name.length <= MAX_NAME && name === name.trim() && name.isWellFormed() && !CONTROLS.test(name)
  if (name === '' || !isName || name.startsWith('_') || name.includes(':')) {
    throw new CouchError(
      'bad_request',
      `\`name\` must have from 1 to ${MAX_NAME} characters, no colon and no control characters, and must not begin with _ or a space.`,
    )
  }
  if (password === '' || !password.isWellFormed() || Buffer.byteLength(password) > MAX_PASSWORD_BYTES) {
    throw new CouchError('bad_request', `\`password\` must have from 1 to ${MAX_PASSWORD_BYTES} bytes.`)
  }
}

/** Checks an account that somebody makes for himself. @throws bad_request */
export function checkSignUp(name: string, password: string): void {
  if (!SIGN_UP_NAME.test(name)) {
    throw new CouchError(
      'bad_request',
      'A name has from 2 to 64 characters, lower-case letters, digits and _ . @ + -, and begins with a letter or a digit.',
    )
  }
  checkAccount(name, password)
  if ([...password].length < MIN_PASSWORD) {
    throw new CouchError('bad_request', `A password has at least ${MIN_PASSWORD} characters.`)
  }
}
