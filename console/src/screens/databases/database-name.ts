export type NameFault = 'empty' | 'first' | 'capitals' | 'characters'

/** @returns what is wrong with the name of a new database; null when it is good, except perhaps for its length */
export function nameFault(name: string): NameFault | null {
  if (name === '') return 'empty'
  if (/[A-Z]/.test(name)) return 'capitals'
  if (!/^[a-z0-9_$()+/-]*$/.test(name)) return 'characters'
  return /^[a-z]/.test(name) ? null : 'first'
}
