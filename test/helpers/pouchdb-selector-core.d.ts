declare module 'pouchdb-selector-core' {
  /** Makes a selector explicit. @throws for one that is not valid */
  export function massageSelector(selector: object): object
  export function matchesSelector(doc: object, selector: object): boolean
}
