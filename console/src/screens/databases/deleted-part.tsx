import type { DatabasePartProps } from './database-page.tsx'

export default function DeletedPart(_: DatabasePartProps) {
  return null
}
