"""What a failure on a GPU says of the case: nothing, where processes of other cases share the GPU through CUDA's Multi-Process Service."""
import os
import unittest
from unittest import mock

from shardfuzz import devices
from shardfuzz.worker import Unusable

SERVICE = "Unexpected error from cudaGetDeviceCount(). Error 807: MPS server is not ready to accept new MPS client requests"
ACCESS = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'"


class ExcuseTest(unittest.TestCase):
    def told(self, text, device="cuda", jobs="3", lost=True):
        """The text of Unusable, or None where the failure is the case's."""
        with mock.patch.dict(os.environ, SHARDFUZZ_DEVICE=device, SHARDFUZZ_JOBS=jobs), mock.patch.object(devices, "is_lost", lambda: lost):
            try:
                devices.excuse(RuntimeError(text))
            except Unusable as excused:
                return str(excused)
        return None

    def test_a_failure_of_the_service_is_no_cases(self):
        for jobs in ("1", "3"):
            self.assertEqual(self.told(SERVICE, jobs=jobs, lost=False), f"CUDA's Multi-Process Service: {SERVICE}")

    def test_an_invalid_access_is_a_cases_where_no_other_runs(self):
        self.assertTrue(self.told(ACCESS).startswith("CUDA error: an illegal memory access was encountered: one failing process makes CUDA fail"))
        self.assertIsNone(self.told(ACCESS, jobs="1"))

    def test_other_failures_are_the_cases(self):
        self.assertIsNone(self.told("the shapes differ", lost=False))
        self.assertIsNone(self.told(ACCESS, device="cpu"))
        self.assertIsNone(self.told("", lost=False))


if __name__ == "__main__":
    unittest.main()
