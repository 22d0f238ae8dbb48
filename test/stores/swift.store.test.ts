import { SWIFT_CAPABILITIES, startSwift } from '../support/stores/swift.ts';
import { describeRealStore } from './real-store-suite.ts';

describeRealStore('OpenStack Swift', SWIFT_CAPABILITIES, startSwift);
