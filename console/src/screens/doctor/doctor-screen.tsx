import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function DoctorScreen() {
  return <Page title={en.doctor.title}>{null}</Page>
}
