import { CEPH_CAPABILITIES, startCeph } from '../support/stores/ceph.ts';
import { describeRealStore } from './real-store-suite.ts';

describeRealStore('Ceph RADOS Gateway', CEPH_CAPABILITIES, startCeph);
