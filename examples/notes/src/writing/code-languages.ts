/** The languages in which code of a note is highlighted. Each is loaded when a note has code in it. */
import { LanguageDescription } from '@codemirror/language'
import { languages } from '@codemirror/language-data'

/** @param info what stands behind the fence, such as `js` or `python title=x` */
export function languageOf(info: string): LanguageDescription | null {
  const name = /^[^\s{,:]*/.exec(info)?.[0] ?? ''
  return name === '' ? null : LanguageDescription.matchLanguageName(languages, name, false)
}
