/** A name may hold what moves the cursor, or what looks like another line. */
export function shown(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (each) => `\\u{${each.codePointAt(0)?.toString(16)}}`)
}

/** What is said in one line, whatever it holds. */
export function oneLine(text: string): string {
  return shown(text.replaceAll(/\s*[\r\n]+\s*/g, ' ').trim())
}
