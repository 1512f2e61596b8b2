import type { Writable } from 'node:stream'

const WIDTH = 30
const CLEAR_LINE = '\r\u001b[K'

/** A line that shows how far something is; where nobody watches, nothing is shown. */
export interface ProgressBar {
  /** @param percent of 100 @param text what is at work, without control characters */
  show(percent: number, text: string): void
  /** Takes the line away. */
  end(): void
}

/** @param screen a terminal shows the bar: not the standard output, which may go to a file */
export function progressBar(
  screen: Writable & { readonly isTTY?: boolean; readonly columns?: number },
): ProgressBar {
  if (screen.isTTY !== true) return { show: () => undefined, end: () => undefined }
  return {
    show: (percent, text) => {
      const filled = Math.round((WIDTH * Math.min(Math.max(percent, 0), 100)) / 100)
      const bar = `[${'#'.repeat(filled)}${'-'.repeat(WIDTH - filled)}] ${String(percent).padStart(3)} % ${text}`
      screen.write(CLEAR_LINE + bar.slice(0, (screen.columns ?? 80) - 1))
    },
    end: () => void screen.write(CLEAR_LINE),
  }
}
