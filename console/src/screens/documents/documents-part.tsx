import type { DatabasePartProps } from '../databases/database-page.tsx'

export default function DocumentsPart(_: DatabasePartProps) {
  return null
}
