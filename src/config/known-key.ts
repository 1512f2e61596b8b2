/** What is known of a key of the configuration, and how tables of keys say it. */
/** What the text of a key must look like; keys without a row in KNOWN_KEYS (defaults.ts) hold any text. */
export type ValueKind =
  | { readonly type: 'integer'; readonly min: number; readonly max: number }
  /** A number of bytes, or `infinity`. */
  | { readonly type: 'bytes'; readonly min: number }
  /** A number, or `infinity`. */
  | { readonly type: 'count'; readonly min: number }
  | { readonly type: 'choice'; readonly of: readonly string[] }
  | { readonly type: 'logFile' }
  /** Shown, and not to be set over HTTP; what local.ini says of it means nothing. */
  | { readonly type: 'shown' }
  /** Says what is wrong with the text, in words that follow the key's name; null when nothing is. */
  | { readonly type: 'checked'; problem(text: string): string | null }
  | { readonly type: 'passwordRules' }
  /** What a legal database name can begin with. */
  | { readonly type: 'databasePrefix' }
  | { readonly type: 'text' }

export interface KnownKey {
  readonly section: string
  readonly key: string
  /** The default, as CouchDB would list it; null when the key is unset, and so not listed, by default. */
  readonly value: string | null
  readonly kind: ValueKind
  /** One line for docs/operating.md. */
  readonly about: string
}

export const TEXT: ValueKind = { type: 'text' }
export const BOOLEAN: ValueKind = { type: 'choice', of: ['true', 'false'] }
export const integer = (min: number, max: number): ValueKind => ({ type: 'integer', min, max })
export const bytes = (min: number): ValueKind => ({ type: 'bytes', min })
export const count = (min: number): ValueKind => ({ type: 'count', min })
/** @param value a number is listed as its digits */
export const row = (
  section: string,
  key: string,
  value: string | number | null,
  kind: ValueKind,
  about: string,
): KnownKey => ({
  section,
  key,
  value: value === null ? null : String(value),
  kind,
  about,
})
