interface ImportMetaEnv {
  /** `scheme://host:port` of the server behind the mode "Hosted Sync Server". */
  readonly VITE_HOSTED_SERVER?: string
}

declare module 'pouchdb-browser' {
  import type { Pouch, PouchOptions } from './pouch.ts'

  const PouchDB: new (name: string, options?: PouchOptions) => Pouch
  export default PouchDB
}
