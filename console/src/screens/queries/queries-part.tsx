import type { DatabasePartProps } from '../databases/database-page.tsx'

export default function QueriesPart(_: DatabasePartProps) {
  return null
}
