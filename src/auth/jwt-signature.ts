/** Reads and verifies tokens with the library `jose`. A separate file, because it is loaded with the first token. */
import type { KeyObject } from 'node:crypto'
import { compactVerify, decodeProtectedHeader, errors } from 'jose'
import { CouchError } from '../core/errors.ts'
import { isTooDeep } from '../core/json.ts'
import { type Claims, isAlgorithm } from './jwt-claims.ts'

/** The header of a token. */
export interface Header {
  readonly alg: string
  readonly kid: string | undefined
  readonly [other: string]: unknown
}

/** @throws bad_token, with CouchDB's reasons (protocol.md 11.5) */
export function headerOf(token: string): Header {
  if (token.split('.', 4).length !== 3) throw new CouchError('bad_token')
  let header: ReturnType<typeof decodeProtectedHeader>
  try {
    header = decodeProtectedHeader(token)
  } catch (error) {
    throw new CouchError('bad_token', undefined, { cause: error })
  }
  if (header.alg === undefined) throw new CouchError('bad_token', 'Missing alg header parameter')
  if (!isAlgorithm(header.alg)) throw new CouchError('bad_token', 'Invalid alg header parameter')
  if (header.typ !== undefined && header.typ !== 'JWT') {
    throw new CouchError('bad_token', 'Invalid typ header parameter')
  }
  if (header.kid !== undefined && typeof header.kid !== 'string') {
    throw new CouchError('bad_token', 'Unknown kid')
  }
  return { ...header, alg: header.alg, kid: header.kid }
}

/**
 * Verifies the signature of a token.
 * @returns what it claims
 * @throws bad_token
 */
export async function claimsOf(token: string, key: KeyObject, algorithm: string): Promise<Claims> {
  const payload = await compactVerify(token, key, { algorithms: [algorithm] }).then(
    (verified) => verified.payload,
    (error: unknown) => {
      throw refusalOf(error, algorithm)
    },
  )
  try {
    const claims = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload)) as unknown
    if (typeof claims === 'object' && claims !== null && !isTooDeep(claims)) return claims as Claims
  } catch {
    // Refused below, as a payload that is not an object.
  }
  throw new CouchError('bad_token')
}

/** A key that does not fit (a curve of another size, an RSA key that is too short) counts as a bad signature. */
function refusalOf(error: unknown, algorithm: string): CouchError {
  const isForm = error instanceof errors.JWSInvalid || error instanceof errors.JOSENotSupported
  if (isForm) return new CouchError('bad_token', undefined, { cause: error })
  const what = algorithm.startsWith('HS') ? 'HMAC' : 'signature'
  return new CouchError('bad_token', `Bad ${what} in authentication token`, { cause: error })
}
