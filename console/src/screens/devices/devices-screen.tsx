import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function DevicesScreen() {
  return <Page title={en.devices.title}>{null}</Page>
}
