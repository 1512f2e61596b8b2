/** @param rows the first names the columns @returns lines whose columns stand below each other */
export function tableText(rows: readonly (readonly string[])[]): string {
  const widths: number[] = []
  for (const row of rows) {
    for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length)
  }
  const lines = rows.map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}
