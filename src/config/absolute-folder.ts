import { isAbsolute } from 'node:path'

/** What is wrong with the path of a folder in the configuration, in words that follow the key's name; null: nothing. */
export function problemOfFolder(text: string): string | null {
  if (text === '' || (isAbsolute(text) && !text.includes('\0'))) return null
  return 'must be the absolute path of a folder'
}
