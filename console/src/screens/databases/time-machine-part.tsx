import type { DatabasePartProps } from './database-page.tsx'

export default function TimeMachinePart(_: DatabasePartProps) {
  return null
}
