import type { DatabasePartProps } from './database-page.tsx'

export default function AccessPart(_: DatabasePartProps) {
  return null
}
