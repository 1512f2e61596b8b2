import type { DatabasePartProps } from './database-page.tsx'

export default function SummaryPart(_: DatabasePartProps) {
  return null
}
