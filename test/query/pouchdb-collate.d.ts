/** The package has no types. */
declare module 'pouchdb-collate' {
  /** Compares two values as PouchDB orders view keys. Strings are compared by their units of UTF-16. */
  export function collate(a: unknown, b: unknown): number
}
